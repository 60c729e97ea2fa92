;; The name of its tool is not UTF-8.
;; world: export dsh:tools/provider@0.1.0;
;; load: plugin `utf8-tool-name` failed in `tools/provider`: it broke off: invalid utf-8 sequence of 1 bytes from index 0
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $ok))
(data (i32.const 0) "\ff")
(func (export "dsh:tools/provider@0.1.0#list-tools") (result i32)
  (i32.store (i32.const 1108) (i32.const 1120)) (i32.store (i32.const 1112) (i32.const 1))
  (i32.store (i32.const 1124) (i32.const 1)) (i32.const 1104))
