;; Its state is longer by a byte after each call, for ever.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
(data (i32.const 0) "k")
(memory (export "memory") 4)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $length i32)
  (call $state.get (i32.const 0) (i32.const 1) (i32.const 2048))
  (if (i32.load8_u (i32.const 2048))
    (then (local.set $length (i32.load (i32.const 2056))) (memory.copy (i32.const 0x20000) (i32.load (i32.const 2052)) (local.get $length)))
    (else (local.set $length (i32.const 0))))
  (i32.store8 (i32.add (i32.const 0x20000) (local.get $length)) (i32.const 49))
  (call $state.set (i32.const 0) (i32.const 1) (i32.const 0x20000) (i32.add (local.get $length) (i32.const 1)) (i32.const 2048))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
