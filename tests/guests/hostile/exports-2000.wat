;; It exports 2,000 functions beside its seam.
;; world: (@repeat 2000 export extra{n}: func();)
;; world: export dsh:agent/request@0.1.0;
(@repeat 2000 (func (export "extra{n}")))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
