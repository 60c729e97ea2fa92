;; It runs the rest 10,000 times, whatever it is told.
;; world: export dsh:agent/request@0.1.0;
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $request-next.run (local.get $next) (i32.const 2048)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 10000))))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
