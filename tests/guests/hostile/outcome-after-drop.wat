;; It drops an outcome and hands it on.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute trap: it broke off: unknown handle index 2
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32) (local $o i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (local.set $o (call $rest (local.get $args))) (call $tool-outcome.drop (local.get $o)) (return (call $passed (local.get $o)))))
  (call $passed (call $rest (local.get $args))))
