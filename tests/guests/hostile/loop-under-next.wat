;; Its tool loops for ever while its listener waits in `next`: the tool is to blame, not the listener.
;; world: export dsh:tools/execute@0.1.0;
;; world: export dsh:tools/provider@0.1.0;
;; limit: cpu-ms 500
;; limit: tool-cpu-ms 20
;; fails: tools/provider limit: it computed for longer than the limit `tool-cpu-ms` of 20 ms
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then ))
  (call $passed (call $rest (local.get $args))))
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (br 0))))
  (call $ok))
