;; The schema of its tool is 100,000 lists in lists.
;; world: export dsh:tools/provider@0.1.0;
;; load: the plugin describes itself wrongly: `tools[0].parameters` is not valid JSON: recursion limit exceeded at line 1 column 128
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $ok))
(data (i32.const 0) "t")
(memory (export "memory") 16)
(func $start (memory.fill (i32.const 0x40000) (i32.const 91) (i32.const 100000)) (memory.fill (i32.const 362144) (i32.const 93) (i32.const 100000))) (start $start)
(func (export "dsh:tools/provider@0.1.0#list-tools") (result i32)
  (i32.store (i32.const 1108) (i32.const 1120)) (i32.store (i32.const 1112) (i32.const 1))
  (i32.store (i32.const 1120) (i32.const 0)) (i32.store (i32.const 1124) (i32.const 1))
  (i32.store (i32.const 1128) (i32.const 0)) (i32.store (i32.const 1132) (i32.const 0))
  (i32.store (i32.const 1136) (i32.const 262144)) (i32.store (i32.const 1140) (i32.const 200000))
  (i32.const 1104))
