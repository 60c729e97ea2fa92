;; It sets a value in its state under a key that is not UTF-8.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: invalid utf-8 sequence of 1 bytes from index 0
(data (i32.const 0) "\80\80") (data (i32.const 8) "1")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $state.set (i32.const 0) (i32.const 2) (i32.const 8) (i32.const 1) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
