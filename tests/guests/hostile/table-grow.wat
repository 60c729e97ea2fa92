;; It wants a table of 10,000,000 elements.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: table limit 100000 elements (`table-elements`): it asked for 10000002
(table $t 1 funcref)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (if (i32.eq (table.grow $t (ref.null func) (i32.const 10000000)) (i32.const -1)) (then unreachable))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
