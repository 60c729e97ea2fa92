;; It loops for ever in `tools/execute` when the tool has run.
;; world: export dsh:tools/execute@0.1.0;
;; limit: cpu-ms 5
;; fails: tools/execute limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (drop (call $rest (local.get $args))) (loop (br 0))))
  (call $passed (call $rest (local.get $args))))
