;; It loops for ever when it is asked for the schema of its configuration, which only `plugin inspect` asks for.
;; world: export dsh:plugin/configure@0.1.0;
;; world: export dsh:agent/request@0.1.0;
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
(func (export "dsh:plugin/configure@0.1.0#schema") (result i32) (loop (br 0)) unreachable)
