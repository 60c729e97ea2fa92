;; It exports 100,000 functions beside its seam.
;; world: export dsh:agent/request@0.1.0;
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(core module (func (export "f")))
(core instance $more (instantiate {modules}))
(func $more (canon lift (core func $more "f")))
(@repeat 100000 (export "more-f{n}" (func $more)))
