;; It answers at an odd address.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: return pointer not aligned
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (return (i32.const 1025))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
