;; It calls what it was not granted 20,000 times.
;; world: import dsh:session/log@0.1.0;
;; world: import dsh:agent/inbox@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 20000
;; slow: it makes 40,000 calls in each round
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x10000))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $log.read (i64.const 0) (i32.const 1) (i32.const 2048)) (call $inbox.send (i32.const 0) (i32.const 0) (i32.const 2048)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 20000))))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
