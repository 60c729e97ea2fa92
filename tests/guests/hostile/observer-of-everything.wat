;; It observes all kinds, each of them many times over.
;; world: export dsh:session/observer@0.1.0;
(func (export "dsh:session/observer@0.1.0#on-entries") (param $entries i32) (param $count i32)
  )
(data (i32.const 0) "*assistant/**/*turn/startplugin/*")
(func (export "dsh:session/observer@0.1.0#kinds") (result i32) (local $n i32)
  (loop
    (i32.store (i32.add (i32.const 0x40000) (i32.shl (local.get $n) (i32.const 3))) (i32.rem_u (local.get $n) (i32.const 20)))
    (i32.store offset=4 (i32.add (i32.const 0x40000) (i32.shl (local.get $n) (i32.const 3))) (i32.rem_u (local.get $n) (i32.const 13)))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (br_if 0 (i32.lt_u (local.get $n) (i32.const 10000))))
  (i32.store (i32.const 1168) (i32.const 0x40000)) (i32.store (i32.const 1172) (i32.const 10000)) (i32.const 1168))
(memory (export "memory") 16)
