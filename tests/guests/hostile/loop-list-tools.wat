;; It loops for ever when it is asked for its tools.
;; world: export dsh:tools/provider@0.1.0;
;; limit: cpu-ms 5
;; load: plugin `loop-list-tools` failed in `tools/provider`: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $ok))
(func (export "dsh:tools/provider@0.1.0#list-tools") (result i32) (loop (br 0)) unreachable)
