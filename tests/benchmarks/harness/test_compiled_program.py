"""What is read from a compiler's messages and programs."""

import pytest

from benchmarks.harness.compiled_program import chip_of, hbm_bytes, reason


def test_an_unknown_chip_is_refused():
    with pytest.raises(ValueError, match=r"v5e.*Received: 'v9:2x2'"):
        chip_of("v9:2x2")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.20G of 15.75G hbm. "
            "Exceeded hbm capacity by 1.45G.",
            "out of memory: used 17.20G of 15.75G",
        ),
        (
            "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (578.84G) exceeds available HBM (15.75G). HLO "
            "module: jit_run.",
            "out of memory: used 578.84G of 15.75G",
        ),
        ("INTERNAL: no such chip\nand more", "INTERNAL: no such chip"),
    ],
)
def test_reason(message, expected):
    assert reason(RuntimeError(message)) == expected


# As the TPU compiler writes them: S(1) is the memory on the chip.
PROGRAM = """HloModule step

%fused (p: f32[8,4]) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %n = f32[8,4]{1,0} negate(%p)
}

%body (state: (f32[8,4])) -> (f32[8,4]) {
  %state = (f32[8,4]{1,0:T(8,128)}) parameter(0)
  %x = f32[8,4]{1,0:T(8,128)} get-tuple-element(%state), index=0
  %near = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} fusion(%x), kind=kLoop, calls=%fused
  %twice = bf16[8,4]{1,0:T(8,128)(2,1)S(1)} add(%near, %near)
  %far = f32[8,4]{1,0:T(8,128)} fusion(%twice), kind=kLoop, calls=%fused
  ROOT %next = (f32[8,4]{1,0:T(8,128)}) tuple(%far)
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0:T(8,128)} parameter(0)
  %copy = (f32[8,4]{1,0:T(8,128)S(1)}, f32[8,4]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%a)
  %done = f32[8,4]{1,0:T(8,128)S(1)} copy-done(%copy)
  %slice = ((f32[8,4]{1,0:T(8,128)}), f32[2,4]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%a)
  %start = (f32[8,4]{1,0:T(8,128)}) tuple(%a)
  %loop = (f32[8,4]{1,0:T(8,128)}) while(%start), condition=%until, body=%body
  ROOT %out = f32[8,4]{1,0:T(8,128)} get-tuple-element(%loop), index=0
}
"""
ARRAY, PART = 8 * 4 * 4, 2 * 4 * 4


def test_what_stays_on_the_chip_is_not_counted():
    # The copy's source, the part that is fetched, what the loop's body reads and writes.
    assert hbm_bytes(PROGRAM) == ARRAY + PART + 2 * ARRAY


def test_without_memory_spaces_every_operand_counts():
    text = PROGRAM.replace("S(1)", "")
    half = ARRAY // 2
    body = (ARRAY + half) + 3 * half + (half + ARRAY)
    assert hbm_bytes(text) == 2 * ARRAY + 2 * PART + body


FAR, NEAR = "f32[8,4]{1,0:T(8,128)}", "f32[8,4]{1,0:T(8,128)S(1)}"
WHOLE, EIGHTH = "f32[64,4]{1,0:T(8,128)}", "f32[1,4]{1,0:T(8,128)}"
INDEX = "s32[]{:T(128)S(6)}"


@pytest.mark.parametrize(
    ("instruction", "arrays"),
    [
        (f"({FAR}, {FAR}, u32[]{{:S(2)}}) collective-permute-start(%a)", 2),
        (f"({FAR}, {WHOLE}) all-gather-start(%a)", 9),
        (f"{FAR} all-reduce-start(%a)", 2),
        (f"(({FAR}), {NEAR}, u32[]{{:S(2)}}) async-start(%a), calls=%negated", 1),
        (f"(({FAR}, {INDEX}), {EIGHTH}, u32[]{{:S(2)}}) dynamic-slice-start(%a, %i)", 2 / 8),
        (f"{FAR} collective-permute-done(%a)", 0),
        (f"{FAR} call(%a), to_apply=%negated", 2),
        (f"{FAR} conditional(%i, %a), true_computation=%negated, false_computation=%b", 5),
        (f"{FAR} conditional(%i, %a), branch_computations={{%negated, %b}}", 5),
        (f"{FAR} opt-barrier(%a)", 0),
        ("s16[16,4]{1,0} negate(%short)", 2),
    ],
)
def test_what_an_instruction_moves(instruction, arrays):
    program = f"""HloModule step

%negated (x: f32[8,4]) -> f32[8,4] {{
  %x = {FAR} parameter(0)
  ROOT %n = {FAR} negate(%x)
}}

%b (y: f32[8,4]) -> f32[8,4] {{
  %y = {FAR} parameter(0)
  ROOT %m = {FAR} add(%y, %y)
}}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {{
  %a = {FAR} parameter(0)
  %i = {INDEX} parameter(1)
  %short = s16[16,4]{{1,0}} parameter(2)
  ROOT %out = {instruction}
}}
"""
    assert hbm_bytes(program) == arrays * ARRAY
