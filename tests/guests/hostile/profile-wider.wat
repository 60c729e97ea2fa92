;; It asks for a wider profile than there is, with paths out of the workspace.
;; world: export dsh:tools/execute@0.1.0;
;; fails: tools/execute error: `../../../..` is not a path inside the workspace: use a relative path with `/` and without `..` (`invalid-argument`)
(data (i32.const 128) "../../../..")
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (i32.store (i32.const 64) (i32.const 128)) (i32.store (i32.const 68) (i32.const 11)) (i32.store8 (i32.const 72) (i32.const 1)) (call $execute-next.restrict (i32.load offset=72 (local.get $args)) (i32.const 64) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048)) (return (i32.const 2048))))
  (call $passed (call $rest (local.get $args))))
