;; It answers a message with a call whose arguments are 100,000 lists in lists.
;; world: export dsh:agent/step-result@0.1.0;
(data (i32.const 64) "aecho")
(memory (export "memory") 16)
(func $start (memory.fill (i32.const 0x40000) (i32.const 91) (i32.const 100000)) (memory.fill (i32.const 362144) (i32.const 93) (i32.const 100000))) (start $start)
(func (export "dsh:agent/step-result@0.1.0#handle") (param $turn i32) (param $step i32) (param $role i32) (param $blocks i32) (param $count i32) (param $next i32) (result i32)
  (if (i32.and (i32.eq (local.get $turn) (i32.const 1)) (i32.eq (local.get $step) (i32.const 1))) (then (i32.store8 (i32.const 0) (i32.const 2)) (i32.store (i32.const 4) (i32.const 64)) (i32.store (i32.const 8) (i32.const 1)) (i32.store (i32.const 12) (i32.const 65)) (i32.store (i32.const 16) (i32.const 4)) (i32.store (i32.const 20) (i32.const 0x40000)) (i32.store (i32.const 24) (i32.const 200000)) (return (call $said (i32.const 0) (i32.const 1)))))
  (call $said (local.get $blocks) (local.get $count)))
