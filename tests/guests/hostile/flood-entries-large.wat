;; It appends entries of 512 KiB until it may hand over no more.
;; world: import dsh:session/log@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: session
;; fails: agent/request error: one call may hand over 16 MiB (`output-mib`), and this is more (`limit`)
;; slow: it appends as much as it may
(memory (export "memory") 16) (data (i32.const 0) "note") (func $start (memory.fill (i32.const 0x10000) (i32.const 32) (i32.const 0x80000)) (i32.store8 (i32.const 0x10000) (i32.const 49))) (start $start)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $log.append (i32.const 0) (i32.const 4) (i32.const 0x10000) (i32.const 0x80000) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (memory.copy (i32.const 1028) (i32.const 2056) (i32.const 16)) (i32.store8 (i32.const 1024) (i32.const 1)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
