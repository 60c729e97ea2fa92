;; It sets value after value in its state until there is no more room, and hands on what it is told: nothing of it may stay.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: state-mib 1
;; limit: cpu-ms 5000
;; fails: agent/request error: with `00001000` the plugin's state would pass its limit of 1 MiB (`state-mib`) (`limit`)
(memory (export "memory") 16) (func $start (memory.fill (i32.const 0x10000) (i32.const 32) (i32.const 0x10000)) (i32.store8 (i32.const 0x10000) (i32.const 49))) (start $start)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (i32.store (i32.const 64) (i32.or (i32.const 0x30303030) (i32.and (i32.load (i32.const 0)) (i32.const 0x0f0f0f0f)))) (i32.store (i32.const 68) (i32.or (i32.const 0x30303030) (i32.and (i32.shr_u (i32.load (i32.const 0)) (i32.const 4)) (i32.const 0x0f0f0f0f)))) (call $state.set (i32.const 64) (i32.const 8) (i32.const 0x10000) (i32.const 0x10000) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
