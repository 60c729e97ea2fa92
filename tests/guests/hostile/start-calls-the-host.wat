;; Its `_initialize` reads the configuration, writes to the log and to the state, before there is a call.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
(data (i32.const 0) "from start")
(func (export "_initialize")
  (call $runtime.config (i32.const 2048))
  (call $runtime.agent (i32.const 2048))
  (call $runtime.log (i32.const 2) (i32.const 0) (i32.const 10))
  (call $state.set (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 10) (i32.const 2048)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
