"""Tests of the predictive policies.

Where each number of the specification is tested; names of tests begin with it where one is enough.

| number | what | where |
|---|---|---|
| PL-K1 to PL-K7 | known answers | `test_known_answers`; PL-K3, PL-K5 in steps: `test_controller` |
| PL-K8, PL13 | scores of a run | `tests/workloads/dematteis2017/test_model` |
| PL-P1 to PL-P8, PL-P10 | properties | `test_properties` |
| PL-P4, PL-P7; PL-P8 | of whole steps; of moves | `test_controller`; `test_rebalancing` |
| PL-P9 | parts add up, lost frames | `tests/runtime/policies/test_concert`, `test_lost_sums` |
| PL1, PL6, PL7, PL9 | the loop | `test_controller` |
| PL2, PL3, PL5 to PL9, PL11, PL14 to PL16 | definitions | `test_definitions` |
| PL4, PL4b | Kingman | PL-K1, PL-P3 |
| PL10 | search | PL-P1 |
| PL12 | baselines | `test_rules`, as policies `test_baselines` |
| PL14 | estimators | PL-K4, `tests/runtime/measuring/test_slot_meter` |
| PL16, PL17 | moves and when | `test_rebalancing`, `test_rules` |
| PL18 | moved keys wait in order | `keyed/test_processor_moves`, `world/test_swarm` |
| 4 (a), 4 (b) | at the keeper, in concert | `test_keeper`, `test_policy` |
| C1 to C7 | criteria | `tests/workloads/dematteis2017/test_evaluation` |

PL19 (one host is filled before the next) is about hosts; an agent has one.
"""
