;; It answers a message with a block of a case that is none.
;; world: export dsh:agent/step-result@0.1.0;
;; fails: agent/step-result trap: it broke off: unexpected discriminant: 6
(func (export "dsh:agent/step-result@0.1.0#handle") (param $turn i32) (param $step i32) (param $role i32) (param $blocks i32) (param $count i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 0) (i32.const 6)) (return (call $said (i32.const 0) (i32.const 1)))))
  (call $said (local.get $blocks) (local.get $count)))
