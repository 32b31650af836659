"""Few compilations find the largest batch, whatever a compiler says that it used."""

import pytest

from benchmarks.harness.largest_batch import largest_batch

WEIGHTS, IMAGE, MEMORY = 1.08e9, 0.0613e9, 16 * 2**30


def compiler(limit, asked):
    """Returns one that refuses what needs more than `limit` bytes."""

    def compile_for(images):
        asked.append(images)
        used = WEIGHTS + IMAGE * images
        if used > limit:
            used, capacity = used / 2**30, limit / 2**30
            return {"error": f"out of memory: used {used:.2f}G of {capacity:.2f}G"}
        return {"arguments": WEIGHTS, "temporaries": used - WEIGHTS, "images": images}

    return compile_for


@pytest.mark.parametrize("start", [1, 64, 250, 256, 1000])
@pytest.mark.parametrize("fitting", [12, 100, 247, 248, 255, 600])
def test_the_largest_is_compiled_and_the_next_refused(fitting, start):
    # The compiler keeps a quarter of a gigabyte for itself.
    limit = WEIGHTS + IMAGE * fitting + 1
    asked = []
    images, found = largest_batch(compiler(limit, asked), start, 8, limit + 2**28)
    assert images == found["images"] == fitting // 8 * 8
    assert {images, images + 8} <= set(asked)
    assert len(asked) == len(set(asked)) <= 9


def test_a_start_near_the_answer_takes_two_compilations():
    asked = []
    assert largest_batch(compiler(MEMORY, asked), 256, 8, MEMORY)[0] == 256
    assert asked == [256, 264]


def test_none_fits():
    asked = []
    assert largest_batch(compiler(WEIGHTS, asked), 64, 8, WEIGHTS) == (0, {})
    assert asked[-1] == 8


@pytest.mark.parametrize("fitting", [280, 400, 1000])
def test_a_compiler_that_saves_memory_where_there_is_little(fitting):
    asked = []

    def compile_for(images):
        asked.append(images)
        if images > fitting:
            return {"error": f"out of memory: used {images * 0.0613:.2f}G of 15.75G"}
        return {"arguments": WEIGHTS, "temporaries": min(IMAGE * images, 14.4e9)}

    assert largest_batch(compile_for, 256, 8, MEMORY)[0] == fitting
    assert len(asked) <= 11


def test_another_failure_is_not_taken_for_a_lack_of_memory():
    with pytest.raises(RuntimeError, match="Received: INTERNAL: no such chip"):
        largest_batch(lambda images: {"error": "INTERNAL: no such chip"}, 64, 8, MEMORY)
