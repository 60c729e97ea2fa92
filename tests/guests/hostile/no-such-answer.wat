;; It answers neither an outcome nor a handle on one.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute trap: it broke off: unexpected discriminant: 2
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store8 (i32.const 1028) (i32.const 2)) (return (i32.const 1024))))
  (call $passed (call $rest (local.get $args))))
