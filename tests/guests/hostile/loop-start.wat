;; Its start function never ends.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 5 ms
;; always: each instance begins with the start function
(func $start (loop (br 0))) (start $start)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
