"""Section 5 of Belkhiria & Tedeschi 2019 again: their policy, ours, and what no policy can beat."""
