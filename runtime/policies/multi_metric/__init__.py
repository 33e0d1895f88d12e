"""Multi-metric scaling with a pool of replicas (Wladdimiro, Arantes, Sens & Hidalgo, NCA 2021).

After each window, utilisation, queue and slowdown of an operator become one number; instances are
added above a threshold and removed below another one, where the state has held for two windows.
All of it is pure: values in, values out.
"""
