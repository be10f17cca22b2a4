"""The attacks that `python -m tests.attacks` executes: enough of each tier, and none twice."""

from collections import Counter

from tests.attacks.corpus import attacks
from tests.attacks.everyday import everyday


def test_there_are_enough_attacks_of_each_tier() -> None:
    tiers = Counter(attack.tier for attack in attacks())
    assert tiers.total() >= 300
    assert all(tiers[tier] >= 40 for tier in ("careless", "disguised", "spread"))


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in attacks()]
    assert len(names) == len(set(names))


def test_there_are_enough_everyday_commands() -> None:
    assert len(everyday()) >= 200
