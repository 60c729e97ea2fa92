;; It loops for ever when the host wants room for the arguments of its tool: before any function of the tool runs.
;; world: export dsh:tools/provider@0.1.0;
;; limit: tool-cpu-ms 5
;; fails: tools/provider limit: it computed for longer than the limit `tool-cpu-ms` of 5 ms
;; always: a call without arguments in its memory there is not
(global $calls (mut i32) (i32.const 0))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (loop (br 0)) unreachable)
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $ok))
