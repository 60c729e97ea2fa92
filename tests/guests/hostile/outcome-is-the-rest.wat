;; It hands on the handle on the rest as if it were an outcome.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute trap: it broke off: handle index 1 used with the wrong type, expected guest-defined resource but found a different guest-defined resource
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (return (call $passed (i32.load offset=72 (local.get $args))))))
  (call $passed (call $rest (local.get $args))))
