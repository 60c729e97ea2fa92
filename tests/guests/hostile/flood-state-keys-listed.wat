;; It asks for the list of its keys again and again, of which there are as many as fit.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 500 ms
;; slow: it computes as long as it may
(data (i32.const 72) "1")
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x10000))
(memory (export "memory") 8)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (i32.store (i32.const 64) (i32.or (i32.const 0x30303030) (i32.and (local.get $n) (i32.const 0x0f0f0f0f)))) (i32.store (i32.const 68) (i32.or (i32.const 0x30303030) (i32.and (i32.shr_u (local.get $n) (i32.const 4)) (i32.const 0x0f0f0f0f)))) (call $state.set (i32.const 64) (i32.const 8) (i32.const 72) (i32.const 1) (i32.const 2048)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 2000)))) (loop (call $state.keys (i32.const 0) (i32.const 0) (i32.const 2048)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
