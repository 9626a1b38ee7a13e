"""What is particular to names in memory."""

from actor_learner.naming import memory


def test_ages_follow_the_clock_to_the_last_moment():
    now = [1000.0]
    with memory.MemoryRegistry("ages", clock=lambda: now[0]) as names:
        names.add("a", "x", ttl=10)
        now[0] += 9.99
        names.touch("a")
        now[0] += 9.99
        assert names.get("a") == "x"
        now[0] += 0.01
        assert names.find_subtree() == {}


def test_spaces_are_shared_by_name_alone():
    with memory.MemoryRegistry("shared") as one, memory.MemoryRegistry("shared") as two:
        with memory.MemoryRegistry("another") as three:
            one.add("a", "x")
            assert two.find_subtree() == {"a": "x"}
            assert three.find_subtree() == {}
            assert one.owner != two.owner
        one.clear_subtree()
