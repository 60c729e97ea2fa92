;; It loops for ever in the guard.
;; world: export dsh:tools/guard@0.1.0;
;; limit: cpu-ms 5
;; fails: tools/guard limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:tools/guard@0.1.0#check") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (loop (br 0))))
  (call $ok))
