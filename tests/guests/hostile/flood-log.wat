;; It writes 100,000 lines to the log and goes on.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5000
;; slow: it writes 100,000 lines in each round
(data (i32.const 0) "flood")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $runtime.log (i32.const 3) (i32.const 0) (i32.const 5)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 100000))))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
