;; It keeps the outcome of its first call and hands it on in its second, in which nothing is run.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute error: no (`hostile`)
(global $kept (mut i32) (i32.const 0))
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (if (global.get $kept) (then (return (call $passed (global.get $kept))))) (global.set $kept (call $rest (local.get $args))) (return (call $fail))))
  (call $passed (call $rest (local.get $args))))
