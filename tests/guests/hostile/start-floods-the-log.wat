;; Its `_initialize` writes 100,000 lines to the log.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; slow: each instance writes 100,000 lines
(data (i32.const 0) "from start")
(func (export "_initialize") (local $n i32)
  (loop (call $runtime.log (i32.const 3) (i32.const 0) (i32.const 10)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 100000)))))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
