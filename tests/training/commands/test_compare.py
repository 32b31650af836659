from keras_vit.training.config import default_config, schema

DATA = {"class_names": ["a"], "train": {"digest": "1234567890", "examples": 3}, "eval": None}


def test_runs_are_compared_by_config_data_results_and_curves(tmp_path, printed, refused):
    for name, rate, own, top1 in (("one", 0.1, {}, 0.5), ("two", 0.2, {"losses": "<focal>"}, 0.75)):
        config = default_config()
        config.optimizer.base_lr, config.batch_size, config.total_steps = rate, 8, 30
        (tmp_path / name).mkdir()
        text = schema.to_json(config, DATA | {"own": own})
        (tmp_path / name / "config.json").write_text(text)
        rows = f"10,2.5,,,0.1\n20,1.25,1.5,{top1},0.05\n30,1.0,1.6,0.25,0\n"
        columns = "step,loss,eval_loss,eval_top1,learning_rate\n"
        (tmp_path / name / "metrics.csv").write_text(columns + rows)
    runs = [str(tmp_path / "one"), str(tmp_path / "two")]
    shown = printed("compare", *runs, f"--output={tmp_path}/page.html")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    assert ["optimizer.base_lr", "0.1", "0.2"] in rows and ["losses", "–", "<focal>"] in rows
    # Nothing else differs; the best evaluation stands beside the last.
    assert sum(len(row) == 3 for row in rows) == 2
    results = [row[1:] for row in rows if len(row) == 7]
    end = ["25.00 %", "1", "30 of 30"]
    of_both = [["top-1 accuracy", best, "20", *end] for best in ("50.00 %", "75.00 %")]
    assert results == of_both
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 4 and "&lt;focal&gt;" in page and "<focal>" not in page
    assert page.index("Differences of configs") < page.index("Results") < page.index("Curves")
    # A folder stands for the runs in it.
    assert printed("compare", tmp_path) == printed("compare", *runs)
    assert "two run directories or more. Received: one." in refused("compare", runs[0])
    assert "nowhere, without metrics.csv." in refused("compare", *runs, f"{tmp_path}/nowhere")
