"""Copies of a journal on hosts that fail, on virtual time: what others have heard of is never lost,
and two incarnations never act together (J1 to J7, Q1, Q2, Q4)."""

from __future__ import annotations

import pytest

from tests.runtime.live.copies.copied_world import CopiedWorld

SEEDS = range(6)


def test_a_host_is_lost_and_another_goes_on_from_the_copy() -> None:
    world = CopiedWorld(1)
    with world.going_on():
        world.goes_on()
        world.newest.host.power_off()
        world.give_up()
        assert world.take_over()
        world.goes_on()
        assert world.newest.found


def test_an_incarnation_that_was_given_up_tells_nothing_more() -> None:
    world = CopiedWorld(2)
    with world.going_on():
        world.goes_on()
        old = world.newest
        world.give_up()
        assert world.take_over()
        world.goes_on(20)
        told = old.told
        world.goes_on(200)
        assert old.told == told <= (world.newest.found or 0)
        assert "fenced" in old.waits


def test_a_holder_is_lost_and_its_copy_is_made_again_elsewhere() -> None:
    world = CopiedWorld(3)
    with world.going_on():
        world.goes_on()
        world.lose("h1")
        world.pass_by(5)
        assert "h1" in world.newest.waits
        told = world.told
        world.choose_holders()
        world.pass_by(5)
        assert world.home.complete == {"h1", "h2"}
        world.choose_holders()
        assert world.home.complete == {"h2"}
        world.goes_on(20)
        assert world.told > told
        world.newest.host.power_off()
        world.give_up()
        assert world.take_over()
        world.goes_on()


def test_a_full_disk_of_a_holder_makes_the_instance_wait_and_loses_nothing() -> None:
    world = CopiedWorld(4)
    with world.going_on():
        world.goes_on()
        world.fill("h1", full=True)
        world.pass_by(10)
        told = world.told
        world.pass_by(5)
        assert world.told == told
        assert "No space left" in world.newest.waits
        world.fill("h1", full=False)
        world.goes_on()
        world.pass_by(3)
        assert world.newest.waits == ""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_writer_that_loses_its_power_gets_from_a_copy_what_it_lacks(seed: int) -> None:
    world = CopiedWorld(seed)
    with world.going_on():
        for _ in range(4):
            world.goes_on(1 + seed)
            world.end_power_of_writer()
        world.goes_on()


def test_a_copy_that_may_have_lost_its_end_is_not_read() -> None:
    world = CopiedWorld(5)
    with world.going_on():
        world.goes_on()
        world.newest.host.power_off()
        world.end_power_of("h1")
        world.pass_by(1)
        world.give_up()
        assert not world.take_over()


def test_a_copy_that_was_completed_after_a_loss_of_power_is_read_again() -> None:
    world = CopiedWorld(6)
    with world.going_on():
        world.goes_on()
        world.end_power_of("h1")
        world.goes_on()
        world.newest.host.power_off()
        world.give_up()
        assert world.take_over()
        world.goes_on()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("holders", [1, 2])
def test_whatever_happens_in_whatever_order_nothing_is_lost(seed: int, holders: int) -> None:
    world = CopiedWorld(100 * holders + seed, holders=holders, spares=1, rooms=3)
    rng = world.rng
    with world.going_on():
        for _ in range(25):
            world.pass_by(rng.random() * 0.7)
            match rng.randrange(8):
                case 0 | 1 | 2:
                    world.cut()
                case 3:
                    world.kill()
                case 4:
                    world.goes_on(1)
                    world.end_power_of_writer()
                case 5:
                    world.goes_on(1)
                    world.end_power_of(rng.choice([*world.hosts]))
                    world.goes_on(1)
                case 6:
                    world.goes_on(1)
                    world.give_up()
                    assert world.take_over()
                case 7:
                    name = rng.choice([*world.hosts])
                    world.fill(name, full=True)
                    world.pass_by(rng.random())
                    world.fill(name, full=False)
        world.goes_on()
        assert world.told > 20
