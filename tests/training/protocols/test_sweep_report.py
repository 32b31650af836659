from training.protocols.sweep_report import published_results


def test_results_of_a_model_on_a_data_set():
    assert published_results("ViT-L/16", "cifar10") == [
        ("Table 2, JFT-300M", "99.42 ± 0.03"),
        ("Table 2, ImageNet-21k", "99.15 ± 0.03"),
        ("Table 5, ImageNet", "97.86"),
        ("Table 5, ImageNet-21k", "99.16"),
        ("Table 5, JFT-300M", "99.38"),
    ]
    assert published_results("R50+ViT-L/16", "oxford_iiit_pet") == [
        ("Table 6, JFT-300M, 7 epochs", "97.03"),
        ("Table 6, JFT-300M, 14 epochs", "97.36"),
    ]
    assert published_results("ViT-Ti/16", "cifar10") == []
