;; It is 500 core instances.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: it is made of more core instances than the limit `instances` of 100
;; always: each instance begins with them
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
;; component:
(core module)
(@repeat 500 (core instance (instantiate {modules})))
