;; It has 1,001 tools.
;; world: export dsh:tools/provider@0.1.0;
;; load: the plugin describes itself wrongly: it has 1001 tools, and a plugin may have 1000
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $ok))
(memory (export "memory") 4)
(data (i32.const 901) "{\"type\":\"object\"}")
(func (export "dsh:tools/provider@0.1.0#list-tools") (result i32) (local $n i32) (local $name i32) (local $at i32)
  (loop
    (local.set $name (i32.add (i32.const 0x10000) (i32.shl (local.get $n) (i32.const 2))))
    (i32.store8 (local.get $name) (i32.const 116))
    (i32.store8 offset=1 (local.get $name) (i32.add (i32.const 97) (i32.rem_u (local.get $n) (i32.const 26))))
    (i32.store8 offset=2 (local.get $name) (i32.add (i32.const 97) (i32.rem_u (i32.div_u (local.get $n) (i32.const 26)) (i32.const 26))))
    (i32.store8 offset=3 (local.get $name) (i32.add (i32.const 97) (i32.div_u (local.get $n) (i32.const 676))))
    (local.set $at (i32.add (i32.const 0x20000) (i32.shl (local.get $n) (i32.const 5))))
    (i32.store (local.get $at) (local.get $name)) (i32.store offset=4 (local.get $at) (i32.const 4))
    (i32.store offset=16 (local.get $at) (i32.const 901)) (i32.store offset=20 (local.get $at) (i32.const 17))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br_if 0 (i32.lt_u (local.get $n) (i32.const 1001))))
  (i32.store (i32.const 1108) (i32.const 0x20000)) (i32.store (i32.const 1112) (i32.const 1001))
  (i32.const 1104))
