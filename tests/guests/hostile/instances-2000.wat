;; It is 2,000 core instances.
;; world: export dsh:agent/request@0.1.0;
;; load: not a valid WebAssembly component: instances count exceeds limit of 1000 (at offset 0xb3b)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(core module)
(@repeat 2000 (core instance (instantiate {modules})))
