;; It sets 1,000,000 keys of its state to nothing, each for a few bytes.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 500
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 500 ms
;; slow: it computes as long as it may
(data (i32.const 72) "1")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (i32.store (i32.const 64) (i32.or (i32.const 0x30303030) (i32.and (i32.load (i32.const 0)) (i32.const 0x0f0f0f0f)))) (i32.store (i32.const 68) (i32.or (i32.const 0x30303030) (i32.and (i32.shr_u (i32.load (i32.const 0)) (i32.const 4)) (i32.const 0x0f0f0f0f)))) (call $state.set (i32.const 64) (i32.const 8) (i32.const 72) (i32.const 1) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
