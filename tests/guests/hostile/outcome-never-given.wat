;; It hands on an outcome that it was never given: nobody ran the tool.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute trap: it broke off: unknown handle index 99
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (return (call $passed (i32.const 99)))))
  (call $passed (call $rest (local.get $args))))
