;; It uses the handle on the request as one on the rest.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: handle index 1 used with the wrong type, expected guest-defined resource but found a different guest-defined resource
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $request-next.run (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
