;; It has a component that is two of another one, which is two of another one, sixteen times over: 65,536 instances in a kilobyte.
;; world: export dsh:agent/request@0.1.0;
;; load: it makes 65539 instances of its modules; this host takes components that make at most 1000
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(component $c0 (core module $m) (core instance (instantiate $m)))
(@repeat 16 (component $c{n+1} (instance (instantiate $c{n})) (instance (instantiate $c{n}))))
(instance (instantiate $c16))
