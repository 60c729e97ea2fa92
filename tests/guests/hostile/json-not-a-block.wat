;; Its tool answers an unknown block that is one of ours in disguise.
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider error: it returned an ill-formed value: `outcome.content[0]` has type `tool-result`, which has a case of its own
(data (i32.const 64) "{\"type\":\"tool-result\",\"callId\":\"a\",\"content\":[]}")
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 0) (i32.const 2)) (i32.store (i32.const 4) (i32.const 64)) (i32.store (i32.const 8) (i32.const 48)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
