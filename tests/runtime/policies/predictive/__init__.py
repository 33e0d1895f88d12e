"""Tests of the predictive policies.

Where each number of the specification is tested; names of tests begin with it where one is enough.

| number | what | where |
|---|---|---|
| K1 to K7 | known answers | `test_known_answers`, K3 and K5 in whole steps: `test_controller` |
| K8, PL13 | scores of a run | `tests/workloads/dematteis2017/test_model` |
| P1 to P8, P10 | properties | `test_properties` |
| P4, P7; P8 | of whole steps; of moves | `test_controller`; `test_rebalancing` |
| P9 | parts add up, lost frames | `tests/runtime/policies/test_concert`, `test_lost_sums` |
| PL1, PL6, PL7, PL9 | the loop | `test_controller` |
| PL2, PL3, PL5 to PL9, PL11, PL14 to PL16 | definitions | `test_definitions` |
| PL4, PL4b | Kingman | K1, P3 |
| PL10 | search | P1 |
| PL12 | baselines | `test_rules`, as policies `test_baselines` |
| PL14 | estimators | K4, `tests/runtime/test_slot_meter` |
| PL16, PL17 | moves and when | `test_rebalancing`, `test_rules` |
| PL18 | moved keys wait in order | `keyed/test_processor_moves`, `test_swarm_moves` |
| 4 (a), 4 (b) | at the keeper, in concert | `test_keeper`, `test_policy` |
| C1 to C7 | criteria | `tests/workloads/dematteis2017/test_evaluation` |

PL19 (one host is filled before the next) is about hosts; an agent has one.
"""
