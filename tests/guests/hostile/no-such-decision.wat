;; It answers a decision of a case that is none.
;; world: export dsh:agent/turn-continuation@0.1.0;
;; fails: agent/turn-continuation trap: it broke off: unexpected discriminant: 3
(func (export "dsh:agent/turn-continuation@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store8 (i32.const 1028) (i32.const 3)) (return (i32.const 1024))))
  (call $ok))
