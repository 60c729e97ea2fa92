;; Its tool loops for ever.
;; world: export dsh:tools/provider@0.1.0;
;; limit: tool-cpu-ms 5
;; fails: tools/provider limit: it computed for longer than the limit `tool-cpu-ms` of 5 ms
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (br 0))))
  (call $ok))
