from benchmarks.memory import measure_memory

TARGETS = {"VMI of a set": 3000, "VMI of a VM": 3000, "VM of a pool": 2000}


def test_cached_objects_need_at_most_their_target_of_memory():
    measured = measure_memory(1000)
    for name, target in TARGETS.items():
        assert 0 < measured[name]["bytes_kept"] < target, name
