# A VM that records from its first boot, and is destroyed only when what it recorded is safe.
#   vmsonar cloud-init --wheels /opt/vmsonar-wheels --upload-url 's3://example-bucket/vms/{node}/' > user-data

data "cloudinit_config" "vm" {
  gzip          = false
  base64_encode = false

  part {
    content_type = "text/cloud-config"
    filename     = "vmsonar.yaml"
    content      = file("${path.module}/user-data")
  }
}

resource "openstack_compute_instance_v2" "vm" {
  name        = "vm1"
  image_name  = "debian-12"
  flavor_name = "m1.small"
  key_pair    = "admin"
  user_data   = data.cloudinit_config.vm.rendered

  network {
    name = "default"
  }

  # A failure here keeps the VM: on_failure is "fail" unless it is said otherwise.
  provisioner "remote-exec" {
    when   = destroy
    inline = ["sudo vmsonar teardown --limit 2min"]

    connection {
      type = "ssh"
      user = "debian"
      host = self.access_ip_v4
    }
  }
}
