;; It loops for ever in `agent/turn-continuation`.
;; world: export dsh:agent/turn-continuation@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/turn-continuation limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:agent/turn-continuation@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (loop (br 0))))
  (call $ok))
